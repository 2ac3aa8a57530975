import sys
def test_x():
    import service, service.app, taugate
    print(service.__file__, sys.path)
